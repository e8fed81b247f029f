// Declarations of Apple's UIKit that the Objective-C example uses. Only to check its syntax and types against.
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
