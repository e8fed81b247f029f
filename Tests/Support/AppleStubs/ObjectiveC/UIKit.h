// Declarations of Apple's UIKit that the Objective-C example uses, for checks of its syntax and types.
@import Foundation;
typedef enum : NSUInteger {
    UIBackgroundFetchResultNewData,
    UIBackgroundFetchResultNoData,
    UIBackgroundFetchResultFailed
} UIBackgroundFetchResult;
@interface UIResponder : NSObject
@end
@interface UIApplication : NSObject
- (void)registerForRemoteNotifications;
@end
@protocol UIApplicationDelegate <NSObject>
@end
