// Declarations of Apple's UserNotifications that the Objective-C example uses, for checks of its syntax and types.
@import Foundation;
typedef NSUInteger UNNotificationPresentationOptions;
@interface UNNotificationContent : NSObject
@end
@interface UNNotificationRequest : NSObject
@end
@interface UNNotification : NSObject
@end
@interface UNNotificationResponse : NSObject
@end
@protocol UNUserNotificationCenterDelegate <NSObject>
@end
@interface UNUserNotificationCenter : NSObject
@property(class, readonly) UNUserNotificationCenter *currentNotificationCenter;
@property(weak) id<UNUserNotificationCenterDelegate> delegate;
- (void)addNotificationRequest:(UNNotificationRequest *)request withCompletionHandler:(void (^)(NSError *))completion;
@end
@interface UNNotificationServiceExtension : NSObject
@end
